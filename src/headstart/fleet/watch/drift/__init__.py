"""Has acceptance fallen? A detector of drift for any server whose counters say how often guesses are right.

detector = Detector()
for cells in windows:  # of Cell: position, source, tag, tested, accepted
    if detector.observe(cells) is Level.PROVED:
        print(detector.estimate)
"""

from headstart.fleet.watch.drift.cells import Baseline, Cell, by_position
from headstart.fleet.watch.drift.detector import Detector
from headstart.fleet.watch.drift.levels import Level, Settings, acceptance_now, shorter_drafts

__all__ = ["Baseline", "Cell", "Detector", "Level", "Settings", "acceptance_now", "by_position", "shorter_drafts"]
