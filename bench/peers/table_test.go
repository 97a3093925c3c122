package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Medians, spread and ratios are in the table, the chart and the JSON.
func TestTable(t *testing.T) {
	tab := &table{Facts: "2 cores"}
	rates, lat := load{name: "sends", kind: "send"}, load{name: "waits", kind: "latency", rate: 1000}
	mine, other, lazy := &peer{name: own, synced: true}, &peer{name: "other", about: "a queue", synced: true}, &peer{name: "lazy"}
	tab.describe(other, "v7")
	for _, v := range []float64{3e6, 1e6, 2e6} {
		tab.add(rates, mine, figure{Rate: v})
		tab.add(rates, lazy, figure{Rate: v / 4})
		tab.add(lat, mine, figure{Rate: 1000, P50: v / 1e3, P99: v / 1e2})
		tab.add(lat, other, figure{Rate: 999, P50: v / 500, P99: v / 1e2})
	}
	md := string(tab.markdown())
	for _, want := range []string{
		"| holdfast | yes, not looked at | 2.00 M (1.00 M–3.00 M) |  |", "| lazy | no | 500 k (250 k–750 k) | 4.00 |",
		"| holdfast | yes, not looked at | 2.00 ms (1.00 ms–3.00 ms) |", "| 0.50, 1.00 |", "| other | v7 | a queue | yes, not looked at |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in\n%s", want, md)
		}
	}
	path := filepath.Join(t.TempDir(), "x")
	if err := tab.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".json")
	var back table
	if err = errors.Join(err, json.Unmarshal(b, &back)); err != nil || len(back.Rows) != 4 || len(back.Rows[0].Figures) != 3 || len(back.Peers) != 3 {
		t.Errorf("%v %+v", err, back)
	}
	svg, err := os.ReadFile(path + ".svg")
	if err != nil || !bytes.HasPrefix(svg, []byte("<svg ")) || !bytes.Contains(svg, []byte("2.00 M")) || !bytes.Contains(svg, []byte("2.00 ms, 20.00 ms")) {
		t.Errorf("%v\n%s", err, svg)
	}
	if count(1234) != "1.2 k" || count(999) != "999" || median(nil) != 0 || median([]float64{1, 2}) != 1.5 {
		t.Error("numbers are written wrong")
	}
}

// Where there is no figure, the table says why; and that a peer syncs is believed only until somebody has looked.
func TestTableSaysWhy(t *testing.T) {
	tab := &table{}
	lat, rates := load{name: "waits", kind: "latency", rate: 1000}, load{name: "sends", kind: "send"}
	mine, slow, broken, liar := &peer{name: own, synced: true}, &peer{name: "slow", synced: true}, &peer{name: "broken"}, &peer{name: "liar", synced: true}
	tab.add(lat, slow, figure{Rate: 585, P50: 1, P99: 2})
	tab.fail(broken, lat, errors.New("out of order"))
	tab.add(lat, mine, figure{Rate: 1000, P50: 1000, P99: 2000})
	tab.fail(broken, rates, errors.New("out of order"))
	tab.add(rates, liar, figure{Rate: 1000})
	tab.synced(slow, 101)
	tab.synced(liar, 99)
	md := string(tab.markdown())
	for _, want := range []string{
		"|\n| holdfast | yes, not looked at | 1.00 ms | 2.00 ms |  |\n| slow | yes, seen | does not keep up: 585/s | | |\n| broken | no | failed | | |\n",
		"| liar | NO: 99 for 100 messages | 1.0 k |  |\n| broken | no | failed | |\n",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in\n%s", want, md)
		}
	}
	if text := (figure{Rate: 585, P50: 1000}).text(lat); !strings.Contains(text, "but only 585/s") {
		t.Error(text)
	}
	svg := string(tab.chart())
	if strings.Contains(svg, "broken") || strings.Contains(svg, "slow") || !strings.Contains(svg, "#d8d3c5") {
		t.Errorf("the chart shows what there are no figures of, or believes a liar:\n%s", svg)
	}
}
