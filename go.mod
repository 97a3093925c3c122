module github.com/holdfastmq/holdfast

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/cockroachdb/datadriven v1.0.3
	github.com/tidwall/btree v1.8.2
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require github.com/pmezard/go-difflib v1.0.0 // indirect
