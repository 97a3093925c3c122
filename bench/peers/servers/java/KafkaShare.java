import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Receives as two members of a share group, and acknowledges each record, confirmed for each poll or with the next one. */
final class KafkaShare implements Client.Peer {
    private static final int CONSUMERS = 2;

    private final List<KafkaShareConsumer<byte[], byte[]>> consumers = new ArrayList<>();
    private boolean confirmed;

    public static void main(String[] args) {
        Client.run(new KafkaShare(), args);
    }

    @Override
    public void open(Client c) {
        confirmed = c.args.get("confirmed").equals("true");
        Properties p = new Properties();
        p.put("bootstrap.servers", c.args.get("addr"));
        p.put("group.id", c.args.get("queue"));
        p.put("share.acknowledgement.mode", "explicit");
        p.put("max.poll.records", 500);
        p.put("fetch.max.wait.ms", 100);
        for (int i = 0; i < CONSUMERS; i++) {
            KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(c.args.get("queue")));
            consumers.add(consumer);
        }
    }

    @Override
    public void send(Client c, byte[] body) {
        throw new UnsupportedOperationException("records are sent by the Go client");
    }

    @Override
    public void receive(Client c) throws InterruptedException {
        List<Thread> threads = new ArrayList<>();
        for (KafkaShareConsumer<byte[], byte[]> consumer : consumers) {
            threads.add(Client.daemon(() -> receive(c, consumer)));
        }
        for (Thread t : threads) {
            t.join();
        }
    }

    private void receive(Client c, KafkaShareConsumer<byte[], byte[]> consumer) {
        while (!c.stopped) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            for (ConsumerRecord<byte[], byte[]> r : records) {
                c.got(r.value());
                consumer.acknowledge(r, AcknowledgeType.ACCEPT);
            }
            if (confirmed && !records.isEmpty()) {
                for (Map.Entry<?, Optional<KafkaException>> e : consumer.commitSync().entrySet()) {
                    e.getValue().ifPresent(x -> { throw x; });
                }
            }
            c.acked(records.count());
        }
        consumer.close();
    }
}
