module github.com/holdfastmq/holdfast/examples/twoprocesses

go 1.26.0

replace (
	github.com/holdfastmq/holdfast => ../..
	github.com/holdfastmq/holdfast/journal/segment => ../../journal/segment
)

require (
	github.com/holdfastmq/holdfast v0.0.0
	github.com/holdfastmq/holdfast/journal/segment v0.0.0
	go.uber.org/goleak v1.3.0
)

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/stretchr/testify v1.9.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
