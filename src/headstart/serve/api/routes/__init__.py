"""The paths, a file for each group of them. What they take and give is translated elsewhere."""
