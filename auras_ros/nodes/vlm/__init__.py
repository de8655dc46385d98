"""The process of a vision-language model: questions and images in, answers out. Nothing is imported here."""
