"""The model: what stream analytics mean, in pure Python; knows neither Spark nor the log."""
