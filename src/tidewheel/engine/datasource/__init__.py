"""The log as a Spark data source and sink: options, offsets, planning and reading batches, backfill."""
