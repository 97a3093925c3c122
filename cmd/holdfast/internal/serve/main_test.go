package serve_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastmq/holdfast/cmd/holdfast/internal/clitest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := clitest.Clean(); err != nil {
			fmt.Println(err)
		}
		os.Exit(code)
	}))
}
