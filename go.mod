module github.com/holdfastmq/holdfast

go 1.26.0

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/cockroachdb/datadriven v1.0.3 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
