"""Pages: the lessons, and reports of simulations."""
