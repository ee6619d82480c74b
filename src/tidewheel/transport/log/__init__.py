"""The interface of a log: topics of records in partitions, blocks of records, consumers."""
