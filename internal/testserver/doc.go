// Package testserver starts the database servers that tests of journal drivers need, by the
// scripts in the repository's folder servers, and stops them again however the test
// process ends.
//
// A test package starts its server in TestMain and stops it when the tests are over:
//
//	func TestMain(m *testing.M) {
//		var err error
//		if server, err = testserver.Start("postgres"); err != nil {
//			fmt.Fprintln(os.Stderr, err)
//			os.Exit(1)
//		}
//		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
//			if err := server.Stop(); err != nil {
//				fmt.Fprintln(os.Stderr, err)
//				code = 1
//			}
//			os.Exit(code)
//		}))
//	}
//
// Where HOLDFAST_TEST_POSTGRES has a URL, Start uses that server and starts none; so one server
// serves all packages of a run (scripts/with-servers). A test that stops, kills or configures
// its server needs one of its own: [StartOwn].
//
// docs/contributing.md tells how a server is added.
package testserver
