"""The world behind `measure/simulated.py`: what its GPUs are like, who loads them, and what follows."""
