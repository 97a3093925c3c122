import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** One Artemis broker that syncs its journal, until the process is ended: DIRECTORY ADDRESS. */
final class ArtemisServer {
    private static final int PROBES = 200;

    public static void main(String[] args) throws Exception {
        String dir = new File(args[0]).getAbsolutePath();
        ConfigurationImpl c = new ConfigurationImpl();
        c.setPersistenceEnabled(true).setSecurityEnabled(false).setJournalType(JournalType.NIO);
        c.setJournalDatasync(true).setJournalSyncTransactional(true).setJournalSyncNonTransactional(true);
        // How long small writes wait for company: by its default as long as ten syncs of this disk, by its own "create" command as long as one.
        c.setJournalBufferTimeout_NIO((int) syncTime(Path.of(dir, "probe")));
        c.setJournalDirectory(dir + "/journal").setBindingsDirectory(dir + "/bindings").setPagingDirectory(dir + "/paging").setLargeMessagesDirectory(dir + "/large");
        c.addAcceptorConfiguration("clients", "tcp://" + args[1]);
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfiguration(c);
        broker.start();
    }

    /** Measures how long the disk takes to write and sync 4 KiB, in nanoseconds. */
    private static long syncTime(Path file) throws IOException {
        try (FileChannel f = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.DELETE_ON_CLOSE)) {
            ByteBuffer block = ByteBuffer.allocateDirect(4096);
            long began = 0;
            for (int i = -PROBES / 4; i < PROBES; i++) {
                if (i == 0) {
                    began = System.nanoTime();
                }
                block.clear();
                f.write(block, Math.floorMod(i, PROBES / 4) * 4096L);
                f.force(false);
            }
            return (System.nanoTime() - began) / PROBES;
        }
    }
}
