"""What drafting ahead of the target takes beside a drafter that can foresee: a worker, and what to foresee."""
