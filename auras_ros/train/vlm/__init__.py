"""How the shipped vision-language model came about: scenes, questions, training, evaluation."""
