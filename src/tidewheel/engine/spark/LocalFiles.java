package tidewheel;

import java.io.File;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Files of this machine, whose permissions are set without starting a process for each, and which are on the disk when
 * Spark takes them for written: what it writes beside and renames (the files of checkpoints), and what it copies into
 * place (those of RocksDB). Not the checksums beside them: a file without is read all the same.
 */
public class LocalFiles extends LocalFileSystem {
    private static volatile boolean durable = true;

    public LocalFiles() {
        super(new Raw());
    }

    public void setDurable(boolean wanted) {
        durable = wanted;
    }

    public boolean rename(Path from, Path to) throws IOException {
        if (!from.getName().endsWith(".tmp")) {
            return super.rename(from, to);
        }
        // Its checksums are renamed after it. Those of another file before must not be beside it in between.
        File stale = pathToFile(getChecksumFile(to));
        if (stale.exists()) {
            stale.delete();
        }
        forceFile(pathToFile(from), StandardOpenOption.WRITE);
        boolean done = super.rename(from, to);
        forceFile(pathToFile(to).getParentFile(), StandardOpenOption.READ);
        return done;
    }

    public void copyFromLocalFile(boolean move, Path from, Path to) throws IOException {
        super.copyFromLocalFile(move, from, to);
        if (pathToFile(to).isFile()) {
            forceFile(pathToFile(to), StandardOpenOption.WRITE);
            forceFile(pathToFile(to).getParentFile(), StandardOpenOption.READ);
        }
    }

    private static void forceFile(File file, OpenOption how) throws IOException {
        if (!durable || file == null || !file.exists()) {
            return;
        }
        FileChannel channel = FileChannel.open(file.toPath(), new OpenOption[] {how});
        try {
            channel.force(true);
        } finally {
            channel.close();
        }
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission wanted) throws IOException {
            if (wanted.getStickyBit()) {
                super.setPermission(path, wanted);
                return;
            }
            String text = wanted.getUserAction().SYMBOL + wanted.getGroupAction().SYMBOL + wanted.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
        }

        protected boolean mkOneDirWithMode(Path path, File folder, FsPermission wanted) throws IOException {
            boolean made = super.mkOneDirWithMode(path, folder, wanted);
            if (made) {
                forceFile(folder.getAbsoluteFile().getParentFile(), StandardOpenOption.READ);
            }
            return made;
        }
    }
}
