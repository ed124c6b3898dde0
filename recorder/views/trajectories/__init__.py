"""Recorded trajectories read back as frozen data: shapes, assembly, transcripts, calls by response id, first turns."""
