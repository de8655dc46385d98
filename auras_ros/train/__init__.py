"""How the shipped policies came about: experts, demonstrations, training runs. Never imported by a running robot."""
