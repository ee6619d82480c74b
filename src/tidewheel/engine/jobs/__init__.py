"""Jobs: functions from streams to results, found in packages and files, run as streams or as a batch."""
