package lint

import (
	"fmt"
	"strings"
	"testing"
)

func TestSleep(t *testing.T) {
	runBites(t, []bite{
		{"in a library", "broker/x.go", "package broker\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{"sleep: time.Sleep"}},
		{"in a test", "broker/x_test.go", "package broker\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{"sleep: time.Sleep"}},
		{"as a value", "broker/x.go", "package broker\n\nimport \"time\"\n\nvar sleep = time.Sleep\n", []string{"sleep: time.Sleep"}},
		{"in virtual time", "broker/x_test.go",
			"package broker\n\nimport (\n\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\"\n)\n\n" +
				"func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n", nil},
		{"beside virtual time", "broker/x_test.go",
			"package broker\n\nimport (\n\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\"\n)\n\n" +
				"func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }\n", []string{"sleep: time.Sleep"}},
		{"another Sleep", "broker/x.go", "package broker\n\nfunc f(time interface{ Sleep() }) { time.Sleep() }\n", nil},
	})
}

func TestSkip(t *testing.T) {
	test := func(body string) string {
		return "package broker\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { " + body + " }\n"
	}
	runBites(t, []bite{
		{"Skip", "broker/x_test.go", test(`t.Skip("slow")`), []string{"skip: a test is skipped"}},
		{"Skipf", "broker/x_test.go", test(`t.Skipf("slow")`), []string{"skip: a test is skipped"}},
		{"SkipNow of a suite", "broker/x_test.go", test(`s.t.SkipNow()`), []string{"skip: a test is skipped"}},
		{"by a method", "broker/x_test.go", test(`s.T().SkipNow()`), []string{"skip: a test is skipped"}},
		{"in a helper package", "journal/journaltest/x.go", "package journaltest\n\nimport \"testing\"\n\nfunc need(tb testing.TB) { tb.Skip() }\n",
			[]string{"skip: a test is skipped"}},
		{"Short", "broker/x_test.go", test(`if testing.Short() { return }`), []string{"skip: testing.Short"}},
		{"a record that is skipped", "journal/x.go", "package journal\n\nfunc f(t table) { t.Skip(1) }\n\ntype table interface{ Skip(int) }\n", nil},
		{"an action that does not apply", "broker/x_test.go", "package broker\n\nimport \"pgregory.net/rapid\"\n\n" +
			"var actions = map[string]func(*rapid.T){\"a\": func(t *rapid.T) { t.Skip() }}\n", nil},
		{"a test beside an action", "broker/x_test.go", "package broker\n\nimport (\n\t\"testing\"\n\n\t\"pgregory.net/rapid\"\n)\n\n" +
			"func TestX(t *testing.T) { rapid.Check(t, func(r *rapid.T) { t.Skip() }) }\n", []string{"skip: a test is skipped"}},
		{"build tag", "broker/x_test.go", "//go:build integration\n\npackage broker\n", []string{"skip: the build tag integration"}},
		{"second build tag", "broker/x_test.go", "//go:build linux || !slow\n\npackage broker\n", []string{"skip: the build tag slow"}},
		{"platform", "broker/x_test.go", "//go:build linux && !race\n\npackage broker\n", nil},
	})
}

func TestPrint(t *testing.T) {
	use := func(importPath, stmt string) string {
		return "package broker\n\nimport \"" + importPath + "\"\n\nfunc f() { " + stmt + " }\n"
	}
	main := func(importPath, stmt string) string {
		return strings.Replace(use(importPath, stmt), "broker", "main", 1)
	}
	runBites(t, []bite{
		{"Println", "broker/x.go", use("fmt", `fmt.Println("x")`), []string{"print: fmt.Println"}},
		{"Sprintln", "broker/x.go", use("fmt", `_ = fmt.Sprintln("x")`), nil},
		{"Fprintln to standard error", "broker/x.go", "package broker\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc f() { fmt.Fprintln(os.Stderr) }\n",
			[]string{"print: os.Stderr"}},
		{"Exit", "broker/x.go", use("os", `os.Exit(1)`), []string{"print: os.Exit"}},
		{"builtin", "broker/x.go", "package broker\n\nfunc f() { println() }\n", []string{"print: println"}},
		{"package log", "broker/x.go", imports("broker", "log"), []string{"print: imports log"}},
		{"package log in the command", "cmd/holdfast/x.go", imports("main", "log"), []string{"print: imports log"}},
		{"slog", "broker/x.go", imports("broker", "log/slog"), nil},
		{"the command prints", "cmd/holdfast/x.go", main("fmt", `fmt.Println("x")`), nil},
		{"examples print", "broker/x_test.go", use("fmt", `fmt.Println("x")`), nil},
	})
}

func TestContext(t *testing.T) {
	runBites(t, []bite{
		{"field", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct{ ctx context.Context }\n", []string{"context: kept in a struct"}},
		{"embedded", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct{ context.Context }\n", []string{"context: kept in a struct"}},
		{"nested", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct{ in struct{ ctx context.Context } }\n", []string{"context: kept in a struct"}},
		{"in a function", "broker/x.go", "package broker\n\nimport \"context\"\n\nfunc f() { type s struct{ ctx context.Context } }\n", []string{"context: kept in a struct"}},
		{"a context itself", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct{ context.Context }\n\nfunc (s) Value(any) any { return 1 }\n", nil},
		{"a context itself, with another", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct {\n\tcontext.Context\n\tother context.Context\n}\n\nfunc (s) Value(any) any { return 1 }\n",
			[]string{"context: kept in a struct"}},
		{"function", "broker/x.go", "package broker\n\nimport \"context\"\n\ntype s struct{ f func(context.Context); cancel context.CancelFunc }\n", nil},
	})
}

func TestGoleak(t *testing.T) {
	const starts = "package broker\n\nfunc f() { go f() }\n"
	runBites(t, []bite{
		{"go", "broker/x.go", starts, []string{"goleak: starts goroutines"}},
		{"wait group", "broker/x.go", "package broker\n\nfunc f(wg interface{ Go(func()) }) { wg.Go(func() {}) }\n", []string{"goleak: starts goroutines"}},
		{"in a test only", "broker/x_test.go", starts, nil},
	})

	t.Run("checked", func(t *testing.T) {
		fsys := repository()
		fsys["broker/x.go"] = files(map[string]string{"x": starts})["x"]
		fsys["broker/x_test.go"] = files(map[string]string{"x": "package broker\n\nimport (\n\t\"testing\"\n\n\t\"go.uber.org/goleak\"\n)\n\n" +
			"func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n"})["x"]
		if findings, err := Check(fsys); err != nil || len(findings) > 0 {
			t.Error(findings, err)
		}
	})
}

func TestSize(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("\n", n) }
	fn := func(n int) string { return "package broker\n\nfunc f() {" + lines(n-1) + "}\n" }
	runBites(t, []bite{
		{"file at the limit", "broker/x.go", "package broker\n" + lines(maxFile-1), nil},
		{"file over it", "broker/x.go", "package broker\n" + lines(maxFile), []string{"size: 501 lines"}},
		{"test file at the limit", "broker/x_test.go", "package broker\n" + lines(maxTestFile-1), nil},
		{"test file over it", "broker/x_test.go", "package broker\n" + lines(maxTestFile), []string{"size: 801 lines"}},
		{"function at the limit", "broker/x.go", fn(maxFunc), nil},
		{"function over it", "broker/x.go", fn(maxFunc + 1), []string{"size: f has 81 lines"}},
		{"test function at the limit", "broker/x_test.go", fn(maxTestFunc), nil},
		{"test function over it", "broker/x_test.go", fn(maxTestFunc + 1), []string{"size: f has 141 lines"}},
		{"generated file", "broker/x.pb.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\n\npackage broker\n" + lines(2*maxFile), nil},
		{"excepted file", "broker/x.go", "//holdfast:allow size: a table\npackage broker\n" + lines(maxFile), nil},
	})

	t.Run("package", func(t *testing.T) {
		fsys := repository()
		for i := range maxFiles { // and doc.go
			fsys[fmt.Sprintf("broker/x%d.go", i)] = files(map[string]string{"x": "package broker\n"})["x"]
		}
		findings, err := Check(fsys)
		if err != nil || len(findings) != 1 || findings[0].Rule != "size" || findings[0].File != "broker" {
			t.Error(findings, err)
		}
	})
}

func TestDoc(t *testing.T) {
	runBites(t, []bite{
		{"function", "broker/x.go", "package broker\n\nfunc F() {}\n", []string{"doc: exported F has no doc comment"}},
		{"documented", "broker/x.go", "package broker\n\n// F does.\nfunc F() {}\n", nil},
		{"with an article", "broker/x.go", "package broker\n\n// A T is.\ntype T struct{}\n", nil},
		{"plural", "broker/x.go", "package broker\n\n// Limits are.\ntype Limits struct{}\n", nil},
		{"another name", "broker/x.go", "package broker\n\n// G does.\nfunc F() {}\n", []string{"doc: does not begin with its name"}},
		{"directive only", "broker/x.go", "package broker\n\n//go:noinline\nfunc F() {}\n", []string{"doc: exported F has no doc comment"}},
		{"unexported", "broker/x.go", "package broker\n\nfunc f() {}\n", nil},
		{"type", "broker/x.go", "package broker\n\ntype T struct{}\n", []string{"doc: exported T"}},
		{"type in a group", "broker/x.go", "package broker\n\ntype (\n\t// T is.\n\tT struct{}\n\tU struct{}\n)\n", []string{"doc: exported U"}},
		{"method", "broker/x.go", "package broker\n\n// T is.\ntype T[K any] struct{}\n\nfunc (t *T[K]) M() {}\n", []string{"doc: exported M"}},
		{"method of an unexported type", "broker/x.go", "package broker\n\ntype t struct{}\n\nfunc (t) M() {}\n", nil},
		{"well-known method", "broker/x.go", "package broker\n\n// T is.\ntype T struct{}\n\nfunc (T) String() string { return \"\" }\n", nil},
		{"constant", "broker/x.go", "package broker\n\nconst C = 1\n", []string{"doc: exported C"}},
		{"constants with one comment", "broker/x.go", "package broker\n\n// Limits.\nconst (\n\tC = 1\n\tD = 2\n)\n", nil},
		{"variable with a comment behind", "broker/x.go", "package broker\n\nvar (\n\tV = 1 // so\n\tW = 2\n)\n", []string{"doc: exported W"}},
		{"interface", "broker/x.go", "package broker\n\n// I is.\ntype I interface {\n\t// M does.\n\tM()\n\tN()\n\tClose() error // ends\n}\n",
			[]string{"doc: I.N has no comment"}},
		{"options", "broker/x.go", "package broker\n\n// Options are.\ntype Options struct {\n\t// A is.\n\tA int\n\tB int\n\tc int\n}\n",
			[]string{"doc: Options.B has no comment"}},
		{"fields that share a comment", "broker/x.go",
			"package broker\n\n// Options are.\ntype Options struct {\n\t// A and B are.\n\tA int\n\tB int\n\tC int\n\n\tA2 int\n}\n",
			[]string{"doc: Options.C has no comment", "doc: Options.A2 has no comment"}},
		{"types that share a comment", "broker/x.go", "package broker\n\n// T and U are.\ntype (\n\tT struct{}\n\tU struct{}\n\tV struct{}\n)\n",
			[]string{"doc: the doc comment of V"}},
		{"fields of others", "broker/x.go", "package broker\n\n// T is.\ntype T struct {\n\tA int\n}\n", nil},
		{"package", "sqs/x.go", "package sqs\n", []string{"doc: package sqs has no package comment"}},
		{"tests", "broker/x_test.go", "package broker\n\nfunc F() {}\n", nil},
		{"command", "cmd/holdfast/x.go", "package main\n\nfunc F() {}\n", nil},
		{"generated", "broker/x.pb.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\n\npackage broker\n\nfunc F() {}\n", nil},
	})
}
