package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkas are Kafka with a flush on every batch and as it comes, read by share groups, by the Go client and by the Java client, acknowledgements confirmed or not.
func kafkas() (all []*peer) {
	for _, flush := range []bool{true, false} {
		for _, java := range []bool{false, true} {
			for _, confirmed := range []bool{true, false} {
				all = append(all, kafkaPeer(flush, java, confirmed))
			}
		}
	}
	return all
}

func kafkaPeer(flush, java, confirmed bool) *peer {
	p := &peer{name: "kafka-default", about: "in the page cache of one broker", synced: flush, warm: warmJIT, version: jarVersion("Kafka", "kafka", "kafka_2.13")}
	if flush {
		p.name, p.about = "kafka-flush", "log.flush.interval.messages=1"
	}
	p.shares = p.name
	p.about += "; share group, each record acknowledged, "
	if confirmed {
		p.about += "confirmed for each poll"
	} else {
		p.about += "not confirmed"
	}
	if java {
		p.name += "-java"
		p.about += "; received by two Java share consumers, sent by the Go client"
		p.program = func(e *env, s spec) []string {
			if s.Send {
				return nil
			}
			return e.java("kafka", "KafkaShare", s, "confirmed", fmt.Sprint(confirmed))
		}
		p.kinds = []string{"pipeline", "latency"} // sends are those of the Go client
	}
	if !confirmed {
		p.name += "-unconfirmed"
		p.kinds = []string{"pipeline"}
	}
	p.start = func(ctx context.Context, e *env, dir string) (*server, error) { return startKafka(ctx, e, dir, flush) }
	p.connect = func(_ context.Context, addr string) (conn, error) { return &kafka{addr, confirmed}, nil }
	return p
}

// startKafka starts one node that is broker and controller.
func startKafka(ctx context.Context, e *env, dir string, flush bool) (*server, error) {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	config := []string{
		"process.roles=broker,controller", "node.id=1", fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", ports[0], ports[1]),
		"controller.listener.names=CONTROLLER", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(dir, "data"), "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1", "share.coordinator.state.topic.num.partitions=1",
		"group.share.record.lock.duration.ms=30000",
		"group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false",
	}
	if flush {
		config = append(config, "log.flush.interval.messages=1")
	}
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("write Kafka's configuration: %w", err)
	}
	jars := filepath.Join(e.servers, "kafka", "*")
	if err := e.run(ctx, dir, "java", "-cp", jars, "kafka.tools.StorageTool", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", file); err != nil {
		return nil, err
	}
	s, err := e.serve(dir, fmt.Sprintf("127.0.0.1:%d", ports[0]), "java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", jars, "kafka.Kafka", file)
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx, func(ctx context.Context) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
		if err != nil {
			return err
		}
		defer cl.Close()
		_, err = kadm.NewClient(cl).ListTopics(ctx)
		return err
	})
}

// kafka is a client of Kafka. Senders and receivers have connections of their own.
type kafka struct {
	addr      string
	confirmed bool
}

func (k *kafka) close() {}

// create makes a topic with one partition, and lets the share group of the same name read it from its beginning.
func (k *kafka) create(ctx context.Context, queue string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	ad := kadm.NewClient(cl)
	r, err := ad.CreateTopic(ctx, 1, 1, nil, queue)
	if err = errors.Join(err, r.Err); err != nil {
		return fmt.Errorf("create a topic: %w", err)
	}
	earliest := "earliest"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, queue
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.auto.offset.reset", &earliest
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	answer, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("configure a share group: %w", err)
	}
	for _, one := range answer.Resources {
		if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
			return fmt.Errorf("configure a share group: %w", err)
		}
	}
	return nil
}

type kafkaSender struct {
	cl    *kgo.Client
	topic string
}

func (k *kafka) sender(_ context.Context, queue string, window int) (sender, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.DefaultProduceTopic(queue), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(window), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	return &kafkaSender{cl, queue}, nil
}

func (s *kafkaSender) send(ctx context.Context, body []byte, done func(error)) error {
	s.cl.Produce(ctx, &kgo.Record{Value: body}, func(_ *kgo.Record, err error) { done(err) })
	return nil
}

func (s *kafkaSender) flush(ctx context.Context) error {
	defer s.cl.Close()
	return s.cl.Flush(ctx)
}

func (k *kafka) receive(ctx context.Context, queue string, got func([]byte), done func(int)) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addr), kgo.ConsumeTopics(queue), kgo.ShareGroup(queue), kgo.ShareMaxRecords(500),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		f := cl.PollRecords(ctx, 500)
		if ctx.Err() != nil {
			break
		}
		for _, e := range f.Errors() {
			if !kerr.IsRetriable(e.Err) {
				return fmt.Errorf("receive from Kafka: %w", e.Err)
			}
		}
		f.EachRecord(func(r *kgo.Record) {
			got(r.Value)
			r.Ack(kgo.AckAccept)
		})
		if k.confirmed {
			if err := cl.FlushAcks(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("acknowledge to Kafka: %w", err)
			}
		}
		done(f.NumRecords())
	}
	return nil
}
