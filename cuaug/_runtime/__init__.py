"""What cuaug needs of the process and the machine: the compiled library, forks, memory, CPU limits, ranks."""
