package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

// onScreen prints a table on a terminal of so many cells.
func onScreen(t *testing.T, columns int, format Format, table Table) string {
	t.Helper()

	var out bytes.Buffer

	console := NewConsole(Streams{Out: &out, Err: &out, OutIsTerminal: true, OutColumns: columns}, "roster")
	console.Format = format
	console.NoColor = true

	if err := console.printTable(table); err != nil {
		t.Fatal(err)
	}

	return out.String()
}

const (
	rid = "01M8G3A0V6K7NKQEK8PR8ATBDX"
	key = "h7IVzNIOFvtUk1yLrqCFeIZAMzgwhq9_9ehzWrdHCbU"
)

// A table that doesn't fit leaves out what can be spared, shortens ids, and has its widest
// cells on several lines, broken between words. All that is left is on the screen.
func TestTablesFitTheirTerminal(t *testing.T) {
	agents := Table{Head: []string{"AGENT", "ORIGIN", "-RID", "BASE (CLAIMED)", "EXPIRES", "+STATE"}}
	agents.Add("contract-reviewer", "alpha.test", rid, "https://legal.alpha.test/contract-reviewer", "in 56 s", "ok")
	agents.Add("東京の天気予報", "beta.test", rid, "https://weather.example/東京の天気予報/今日と明日", "in 2 min", "ok")

	if got, want := onScreen(t, 70, "", agents), `
AGENT              ORIGIN      BASE (CLAIMED)                 EXPIRES
contract-reviewer  alpha.test  https://legal.alpha.test/      in 56 s
                               contract-reviewer
東京の天気予報     beta.test   https://weather.example/       in 2 min
                               東京の天気予報/今日と明日
`[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	status := Table{Head: []string{"SUBJECT", "STATE", "DETAIL", "NEXT"}}
	status.Add("member spiffe://alpha.test/roster/node/3", "silent", "last contact 13 s ago; it voted before",
		"roster raft peers")
	status.Add("key of spiffe://alpha.test/agent/ada", "ok", "signed by "+key+", listed", "")

	if got, want := onScreen(t, 80, "", status), `
SUBJECT                     STATE   DETAIL                     NEXT
member node/3               silent  last contact 13 s ago; it  roster raft peers
                                    voted before
key of alpha.test/agent/    ok      signed by h7IVzNIO…,
ada                                 listed
`[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	node := Table{Head: []string{"SUBJECT", "STATE", "DETAIL", "NEXT"}}
	node.Add("node node/a", "not ready", "version v0.0.0-20261128045450-6a35f62ec3b6, no leader", "roster help doctor")
	node.Add("limits.registrations_per_domain", "ok", "0 of 1000000", "")

	if got := onScreen(t, 80, "", node); !strings.HasPrefix(got, "SUBJECT ") {
		t.Errorf("a long version makes a list of\n%s", got)
	}

	packages := Table{Head: []string{"AGENT", "ORIGIN", "PROTOCOLS", "BASE (CLAIMED)", "EXPIRES"}}
	packages.Add("contract-reviewer-of-all", "alpha.test", "mcp", "pkg:generic/x?download_url=https://github.com/acme",
		"in 8 min")

	if got := onScreen(t, 80, "", packages); !strings.HasPrefix(got, "AGENT ") {
		t.Errorf("a long URL makes a list of\n%s", got)
	}

	for _, table := range []Table{agents, status} {
		for columns := 8; columns < 200; columns++ {
			checkFit(t, table, columns)
		}
	}
}

// checkFit fails if a line is longer than a terminal, or a word of a table is lost.
func checkFit(t *testing.T, table Table, columns int) {
	t.Helper()

	got := onScreen(t, columns, "", table)
	for line := range strings.Lines(got) {
		if width := CellWidth(strings.TrimSuffix(line, "\n")); columns >= 40 && width > columns {
			t.Fatalf("%d cells of %d in %q", width, columns, line)
		}
	}

	for _, row := range table.Rows {
		for _, word := range wordsOf(shortIDs(row[0]), longestWord) {
			if columns >= 40 && !strings.Contains(got, strings.TrimSpace(word)) {
				t.Fatalf("%d columns: %q is not in\n%s", columns, word, got)
			}
		}
	}
}

// A cell that is an id is for those who copy it; a table that fits, -o wide and a terminal of
// unknown width show all as it is.
func TestIDsAreWholeWhereTheyFit(t *testing.T) {
	table := Table{Head: []string{"KEY", "-RID", "NODE", "DETAIL"}}
	table.Add(key, rid, "spiffe://alpha.test/roster/node/1", "signed by "+key)

	for columns, format := range map[int]Format{0: "", 200: "", 40: FormatWide} {
		got := onScreen(t, columns, format, table)
		if !strings.Contains(got, rid) || strings.Count(got, key) != 2 || !strings.Contains(got, "spiffe://") {
			t.Errorf("%d columns, format %q: got\n%s", columns, format, got)
		}
	}

	if got := onScreen(t, 80, "", table); strings.Contains(got, rid) || strings.Count(got, key) != 1 ||
		!strings.Contains(got, "node/1") {
		t.Errorf("80 columns: got\n%s", got)
	}
}

// Columns whose words don't fit beside each other become members, one on a line; a record
// does as soon as it doesn't fit.
func TestRowsThatDoNotFitBecomeMembers(t *testing.T) {
	wide := Table{Head: []string{"SCORE", "AGENT", "ENDPOINT (CLAIMED)", "NOTE"}}
	wide.Add("0.9", "contract-reviewer", "https://legal.alpha.test/contract-reviewer", "")
	wide.Add("0.8", "menu-translator", "https://kitchen.alpha.test/menu", "new")

	if got, want := onScreen(t, 50, "", wide), `
score               0.9
agent               contract-reviewer
endpoint (claimed)  https://legal.alpha.test/
                    contract-reviewer

score               0.8
agent               menu-translator
endpoint (claimed)  https://kitchen.alpha.test/
                    menu
note                new
`[1:]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	caller := Table{Head: []string{"IDENTITY", "EXPIRES"}, Record: true}
	caller.Add("spiffe://alpha.test/agent/ada of a token", "in 3 h")

	if got, want := onScreen(t, 36, "", caller), "identity  alpha.test/agent/ada of a\n          token\n"+
		"expires   in 3 h\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTimesAreToldInTheirUnit(t *testing.T) {
	console := onTerminal(&bytes.Buffer{})

	for distance, want := range map[time.Duration]string{
		0: "now", 90 * time.Second: "in 90 s", 150 * time.Second: "in 2 min", -150 * time.Minute: "2 h ago",
		50 * time.Hour: "in 2 days", -800 * 24 * time.Hour: "2 years ago",
	} {
		if got := console.Time(time.Now().Add(distance)); got != want {
			t.Errorf("%s: %q, want %q", distance, got, want)
		}
	}

	if got := console.Time(time.Time{}); got != "" {
		t.Errorf("the zero time is %q", got)
	}
}

// A state has its colour beside its word, if colours are not switched off.
func TestStatesAreColoured(t *testing.T) {
	table := Table{Head: []string{"SUBJECT", "STATE"}}
	for _, row := range [][]string{
		{"failed", "ready"}, {"a", "FAILED"}, {"b", "expires soon"}, {"c", "unreachable since 2026"}, {"d", "odd"},
		{"e", "frozen, evidence of 2026"},
	} {
		table.Add(row...)
	}

	var out bytes.Buffer
	if err := onTerminal(&out).printTable(table); err != nil {
		t.Fatal(err)
	}

	want := []string{
		"\x1b[1mSUBJECT\x1b[m  \x1b[1mSTATE\x1b[m", "failed   \x1b[32mready\x1b[m", "a        \x1b[31mFAILED\x1b[m",
		"b        \x1b[33mexpires soon\x1b[m", "c        \x1b[31munreachable since 2026\x1b[m", "d        odd",
		"e        \x1b[31mfrozen, evidence of 2026\x1b[m",
	}
	if got := lines(out.String()); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}

	if got := onScreen(t, 80, "", table); strings.Contains(got, "\x1b") {
		t.Errorf("without colours: %q", got)
	}
}
