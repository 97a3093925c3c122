module github.com/holdfastmq/holdfast/journal/segment

go 1.26.0

require (
	github.com/holdfastmq/holdfast v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.50.0
)

require github.com/tidwall/btree v1.8.2 // indirect

replace github.com/holdfastmq/holdfast => ../..
