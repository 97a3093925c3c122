import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The life of a client process whose client library is a Java one. It does what client.go does, and speaks with the process that started it in the same words:
 * it is told "go", "stop" and how many messages the other side has received, and says JSON objects, one a line.
 */
final class Client {
    /** A peer's client. */
    interface Peer {
        /** Connects, so that nothing is left to be done once the work begins. */
        void open(Client c) throws Exception;

        /** Sends a message; answered is to be called once it is stored. */
        void send(Client c, byte[] body) throws Exception;

        /** Receives until c.stopped, and calls got and acked. */
        void receive(Client c) throws Exception;
    }

    private static final int SAMPLE_EVERY = 64;

    final Map<String, String> args = new HashMap<>();
    volatile boolean stopped;

    private final PrintStream out = System.out;
    private final CountDownLatch begin = new CountDownLatch(1);
    private final AtomicLong done = new AtomicLong();
    private final AtomicLong others = new AtomicLong();
    private final Semaphore room;
    private volatile boolean measuring;
    private long[] samples = new long[1 << 12];
    private int sampled;

    private Client(String[] args) {
        for (int i = 0; i + 1 < args.length; i += 2) {
            this.args.put(args[i], args[i + 1]);
        }
        room = new Semaphore((int) number("window"));
    }

    static void run(Peer peer, String[] args) {
        try {
            new Client(args).run(peer);
        } catch (Throwable t) {
            fail(t);
        }
        // Libraries leave threads behind that would keep the process.
        System.exit(0);
    }

    static void fail(Throwable t) {
        t.printStackTrace();
        System.exit(1);
    }

    long number(String name) {
        return (long) Double.parseDouble(args.get(name));
    }

    boolean sends() {
        return args.get("send").equals("true");
    }

    private void run(Peer peer) throws Exception {
        peer.open(this);
        daemon(this::obey);
        say("{\"ready\":true}");
        Thread receiver = sends() ? null : daemon(() -> peer.receive(this)); // it takes some peers a while until the first message comes
        daemon(this::tellProgress);
        begin.await();
        long began = System.nanoTime();
        String[] result = new String[1];
        Thread measurer = daemon(() -> result[0] = measure(began));
        if (sends()) {
            send(peer, began);
        } else {
            receiver.join();
        }
        if (number("count") == 0) {
            measurer.join();
        } else {
            result[0] = "";
        }
        say("{\"result\":{" + result[0] + "\"total\":" + done.get() + "}}");
    }

    private void obey() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String word; (word = in.readLine()) != null; ) {
            switch (word) {
                case "go" -> begin.countDown();
                case "stop" -> stopped = true;
                default -> others.set(Long.parseLong(word));
            }
        }
        System.exit(1); // nobody listens any more
    }

    private void tellProgress() throws InterruptedException {
        while (true) {
            say("{\"progress\":" + done.get() + "}");
            Thread.sleep(20);
        }
    }

    private synchronized void say(String line) {
        out.println(line);
        out.flush();
    }

    private String measure(long began) throws InterruptedException {
        sleepUntil(began + number("warmup"));
        long at = System.nanoTime(), n = done.get(), used = cpu();
        measuring = true;
        sleepUntil(at + number("duration"));
        measuring = false;
        double took = (System.nanoTime() - at) / 1e9;
        String text = "\"rate\":" + (done.get() - n) / took + ",\"cpu\":" + (cpu() - used) / 1e9 / took + ",";
        synchronized (this) {
            if (sampled > 0) {
                Arrays.sort(samples, 0, sampled);
                text += "\"samples\":" + sampled + ",\"p50\":" + at(0.5) + ",\"p99\":" + at(0.99) + ",\"p999\":" + at(0.999) + ",";
            }
        }
        return text;
    }

    private double at(double part) {
        return samples[(int) Math.min(sampled - 1, Math.ceil(part * sampled) - 1)] / 1e3;
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void sleepUntil(long at) {
        for (long left; (left = at - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
        }
    }

    private static long now() {
        Instant i = Instant.now();
        return i.getEpochSecond() * 1_000_000_000 + i.getNano();
    }

    /** Sends until the measured time is over, and waits for all answers. */
    private void send(Peer peer, long began) throws Exception {
        byte[] plain = new byte[(int) Math.max(8, number("payload"))];
        new Random().nextBytes(plain);
        Arrays.fill(plain, 0, 8, (byte) 0);
        double rate = Double.parseDouble(args.get("rate"));
        long count = number("count"), ahead = number("ahead"), end = began + number("warmup") + number("duration");
        for (long n = 0; count == 0 || n < count; n++) {
            byte[] body = plain;
            long due = 0;
            if (rate > 0) {
                due = began + (long) (n / rate * 1e9);
                sleepUntil(due);
            } else if (n % SAMPLE_EVERY == 0) {
                due = System.nanoTime();
            }
            if (due != 0) {
                // Whoever cannot keep the rate is late with the last one, but not for ever.
                if (count == 0 && (due > end || System.nanoTime() > end + 1_000_000_000)) {
                    break;
                }
                body = plain.clone();
                ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).putLong(0, now() - (System.nanoTime() - due));
            }
            while (ahead > 0 && n - others.get() >= ahead && System.nanoTime() < end) {
                LockSupport.parkNanos(200_000);
            }
            room.acquire();
            peer.send(this, body);
        }
        room.acquire((int) number("window"));
    }

    /** Tells that a message is stored. */
    void answered() {
        done.incrementAndGet();
        room.release();
    }

    /** Tells that the user has a message, of which head is at least the first eight bytes. */
    void got(byte[] head) {
        if (!measuring) {
            return;
        }
        long sent = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getLong(0);
        if (sent == 0) {
            return;
        }
        synchronized (this) {
            if (sampled == samples.length) {
                samples = Arrays.copyOf(samples, 2 * sampled);
            }
            samples[sampled++] = Math.max(0, now() - sent);
        }
    }

    /** Tells that acknowledgements have been made. */
    void acked(int n) {
        done.addAndGet(n);
    }

    /** What a thread of this process does. */
    interface Task {
        void run() throws Exception;
    }

    static Thread daemon(Task task) {
        Thread t = new Thread(() -> {
            try {
                task.run();
            } catch (Throwable e) {
                fail(e);
            }
        });
        t.setDaemon(true);
        t.start();
        return t;
    }
}
