import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.SendAcknowledgementHandler;
import org.apache.activemq.artemis.api.core.client.ServerLocator;

/** Sends without blocking, to be told of each message that is stored, and acknowledges each message that it receives. */
final class Artemis implements Client.Peer {
    private ClientSession session;
    private ClientProducer producer;
    private ClientConsumer consumer;

    public static void main(String[] args) {
        Client.run(new Artemis(), args);
    }

    @Override
    public void open(Client c) throws Exception {
        ServerLocator locator = ActiveMQClient.createServerLocator("tcp://" + c.args.get("addr"));
        locator.setConfirmationWindowSize(1 << 20);
        locator.setBlockOnDurableSend(false);
        locator.setBlockOnAcknowledge(false);
        // The window is kept here, by number.
        locator.setProducerWindowSize(-1);
        session = locator.createSessionFactory().createSession(true, true, 0);
        String queue = c.args.get("queue");
        // The receiver is ready before the sender is started, so the two do not meet here.
        if (!session.queueQuery(SimpleString.of(queue)).isExists()) {
            session.createQueue(QueueConfiguration.of(queue).setRoutingType(RoutingType.ANYCAST).setDurable(true));
        }
        if (c.sends()) {
            session.setSendAcknowledgementHandler(new SendAcknowledgementHandler() {
                @Override
                public void sendAcknowledged(Message m) {
                    c.answered();
                }

                @Override
                public void sendFailed(Message m, Exception e) {
                    Client.fail(e);
                }
            });
            producer = session.createProducer(queue);
        } else {
            consumer = session.createConsumer(queue);
        }
        session.start();
    }

    @Override
    public void send(Client c, byte[] body) throws Exception {
        ClientMessage m = session.createMessage(true);
        m.getBodyBuffer().writeBytes(body);
        producer.send(m);
    }

    @Override
    public void receive(Client c) throws Exception {
        while (!c.stopped) {
            ClientMessage m = consumer.receive(100);
            if (m == null) {
                continue;
            }
            byte[] body = new byte[m.getBodyBuffer().readableBytes()];
            m.getBodyBuffer().readBytes(body);
            c.got(body);
            m.individualAcknowledge();
            c.acked(1);
        }
        session.close();
    }
}
