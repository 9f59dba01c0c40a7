"""The process and the machine: compiled library, forks, memory, CPU limits, ranks."""
