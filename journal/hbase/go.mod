module github.com/holdfastmq/holdfast/journal/hbase

go 1.26.0

require (
	github.com/apache/thrift v0.25.0
	github.com/holdfastmq/holdfast v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

replace github.com/holdfastmq/holdfast => ../..
