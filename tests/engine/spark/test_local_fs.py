"""How Spark writes the files of this machine."""

from __future__ import annotations

import logging
import stat

import pytest

from tidewheel.engine.spark import local_fs


@pytest.fixture
def local(spark):
    """What Spark's Java takes for files of this machine, whoever asks."""
    return spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jvm.org.apache.hadoop.conf.Configuration())


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("wanted", [0o600, 0o644, 0o755, 0o000, 0o1770])
def test_files_get_the_permissions_that_they_are_to_have(spark, local, tmp_path, wanted):
    hadoop = spark._jvm.org.apache.hadoop
    path = tmp_path / "file"
    local.create(hadoop.fs.Path(str(path))).close()
    local.setPermission(hadoop.fs.Path(str(path)), hadoop.fs.permission.FsPermission(wanted))
    assert _mode(path) == wanted
    assert local.getFileStatus(hadoop.fs.Path(str(path))).getPermission().toShort() == wanted


def test_new_files_and_folders_keep_to_the_umask_and_have_checksums_beside_them(spark, local, tmp_path):
    path = spark._jvm.org.apache.hadoop.fs.Path(str(tmp_path / "a" / "b" / "file"))
    local.create(path).close()
    assert _mode(tmp_path / "a" / "b" / "file") == 0o644
    assert _mode(tmp_path / "a" / "b") == 0o755
    assert sorted(found.name for found in (tmp_path / "a" / "b").iterdir()) == [".file.crc", "file"]


def test_permissions_are_set_by_java_itself(local):
    assert local.getClass().getName() == "tidewheel.LocalFiles"
    assert local.getRaw().getClass().getName() == "tidewheel.LocalFiles$Raw"


def test_a_file_that_is_not_there_is_an_error(spark, local, tmp_path):
    hadoop = spark._jvm.org.apache.hadoop
    with pytest.raises(Exception, match="NoSuchFileException"):
        local.setPermission(hadoop.fs.Path(str(tmp_path / "nowhere")), hadoop.fs.permission.FsPermission(0o600))


def test_what_cannot_be_compiled_leaves_all_as_it_was(spark, tmp_path, monkeypatch, caplog):
    """In a Java of its own kind, say: files are written all the same."""
    (tmp_path / "LocalFiles.java").write_text("no Java at all")
    monkeypatch.setattr(local_fs, "files", lambda package: tmp_path)
    monkeypatch.setattr(local_fs, "_CLASS", "tidewheel.AnotherName")
    with caplog.at_level(logging.WARNING):
        local_fs.write_files_directly(spark)
    assert "process for each file" in caplog.text
    spark.range(3).write.parquet(str(tmp_path / "rows"))
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 3
