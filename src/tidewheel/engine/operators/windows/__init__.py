"""What window operators share: assignment to slices, partial aggregates, triggers and panes in columns."""
