"""What stands beside a score: what judges were asked, what each of several replied, and groups they disagree about."""
