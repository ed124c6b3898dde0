"""What time and deletion take away: the sweep, one run's deletion, nodes, blobs and versions' folders that
nobody needs any more.

Refuses: deciding whether something should be deleted (people and `recorder.retention_days` do), and the rules of the
end.
"""
