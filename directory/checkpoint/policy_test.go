package checkpoint_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"filippo.io/torchwood"

	"github.com/roster-mesh/roster/directory/checkpoint"
)

// logLine and witnessLine are lines of a policy for the key that name stands for.
func logLine(name string) string {
	return "log " + vkey(origin, checkpoint.TypeLog, name).String() + "\n"
}

func witnessLine(name string) string { return witnessAs(name, name) }

// witnessAs is the line of a witness that the policy calls otherwise.
func witnessAs(called, name string) string {
	return "witness " + called + " " + vkey(name, checkpoint.TypeWitness, name).String() + "\n"
}

func mustPolicy(t *testing.T, text string) *checkpoint.Policy {
	t.Helper()

	p, err := checkpoint.ParsePolicy(text)
	must(t, err)

	return p
}

// Requirement: LOG-006
func TestPolicyHasOneForm(t *testing.T) {
	text := logLine("a") + "log " + vkey(origin, checkpoint.TypeLog, "b").String() + " https://alpha.test/log/1\n" +
		witnessLine("w1") + witnessLine("w2") + witnessLine("w3") +
		"group beta.test any w1 w2\ngroup all.test all beta.test w3\nquorum all.test\n"

	p := mustPolicy(t, text)
	if p.Text() != text || len(p.Logs) != 2 || p.Logs[1].URL != "https://alpha.test/log/1" {
		t.Errorf("read as %+v, which is written as\n%s", p, p.Text())
	}

	loose := "# a comment\n\n \t" + strings.ReplaceAll(text, " any ", "\t 1  ") + "  # the end\n"
	if again := mustPolicy(t, loose); !reflect.DeepEqual(p, again) {
		t.Errorf("with spaces and comments it is read as %+v", again)
	}
}

func TestPoliciesThatBreakARuleAreRefused(t *testing.T) {
	for name, bad := range map[string]string{
		"nothing":                    "",
		"no quorum":                  logLine("a"),
		"no last newline":            "quorum none",
		"two quorums":                "quorum none\nquorum none\n",
		"an unknown quorum":          "quorum w\n",
		"a quorum before its name":   "quorum w\n" + witnessLine("w"),
		"a quorum of two":            witnessLine("v") + witnessLine("w") + "quorum v w\n",
		"an unknown keyword":         "logs x\nquorum none\n",
		"a log without key":          "log\nquorum none\n",
		"three words of a log":       strings.TrimSpace(logLine("a")) + " u v\nquorum none\n",
		"a witness's key as log":     "log " + vkey("w", checkpoint.TypeWitness, "w").String() + "\nquorum none\n",
		"a log's key as witness":     "witness w " + vkey("w", checkpoint.TypeLog, "w").String() + "\nquorum none\n",
		"the same log twice":         logLine("a") + logLine("a") + "quorum none\n",
		"the same witness twice":     witnessLine("w") + witnessAs("v", "w") + "quorum none\n",
		"a name twice":               witnessLine("w") + "witness w " + vkey("v", 4, "v").String() + "\nquorum none\n",
		"a witness called none":      "witness none " + vkey("v", 4, "v").String() + "\nquorum none\n",
		"none in a group":            "group g any none\nquorum g\n",
		"a member of two groups":     witnessLine("w") + "group g any w\ngroup h any w\nquorum g\n",
		"a member twice":             witnessLine("w") + "group g any w w\nquorum g\n",
		"a group in itself":          "group g any g\nquorum g\n",
		"an empty group":             "group g all\nquorum g\n",
		"a threshold of 0":           witnessLine("w") + "group g 0 w\nquorum g\n",
		"a threshold of 2 of 1":      witnessLine("w") + "group g 2 w\nquorum g\n",
		"a threshold of 01":          witnessLine("w") + "group g 01 w\nquorum g\n",
		"a carriage return":          "quorum none\r\n",
		"a witness without its name": "witness " + vkey("w", 4, "w").String() + "\nquorum none\n",
		"too long":                   strings.Repeat("#", checkpoint.MaxPolicy) + "\nquorum none\n",
	} {
		if p, err := checkpoint.ParsePolicy(bad); !errors.Is(err, checkpoint.ErrForm) {
			t.Errorf("%s: read as %+v, %v", name, p, err)
		}
	}
}

// Requirement: LOG-013
// Which witnesses make a quorum is judged as torchwood does.
func TestQuorumIsJudgedAsTorchwoodDoes(t *testing.T) {
	witnesses := witnessLine("w1") + witnessLine("w2") + witnessLine("w3")

	for _, groups := range []string{
		"quorum none\n",
		"quorum w1\n",
		"group g any w1 w2\nquorum g\n",
		"group g all w1 w2 w3\nquorum g\n",
		"group g 2 w1 w2 w3\nquorum g\n",
		"group g any w1 w2\ngroup h all g w3\nquorum h\n",
	} {
		text := logLine("a") + witnesses + groups
		policy := mustPolicy(t, text)

		theirs, err := torchwood.ParsePolicy([]byte(text))
		must(t, err)

		for set := range 8 {
			var cosigners []string
			for i, name := range []string{"w1", "w2", "w3"} {
				if set&(1<<i) != 0 {
					cosigners = append(cosigners, name)
				}
			}

			n := cosignedNote(t, cosigners...)

			got, err := policy.Judge(n)
			must(t, err)

			_, _, err = torchwood.VerifyCheckpoint([]byte(n.String()), theirs)
			if want := err == nil; got.Quorum != want || len(got.Logs) != 1 {
				t.Errorf("%s by %v: quorum %t, logs %d; torchwood says %v", groups, cosigners, got.Quorum,
					len(got.Logs), err)
			}

			var names []string
			for _, c := range got.Witnesses {
				names = append(names, c.Witness.Name)

				if !c.At.Equal(when) {
					t.Errorf("%s cosigned at %s", c.Witness.Name, c.At)
				}
			}

			if !slices.Equal(names, cosigners) {
				t.Errorf("found %v, want %v", names, cosigners)
			}
		}
	}
}

// Any log of the policy may sign; a line by a known key that does not hold refuses all.
func TestPolicyAndTheLogsOfANote(t *testing.T) {
	n := cosignedNote(t, "w")

	for text, logs := range map[string]int{
		logLine("a") + "quorum none\n":                1,
		logLine("b") + logLine("a") + "quorum none\n": 1,
		logLine("b") + "quorum none\n":                0,
		"quorum none\n":                               0,
		"log " + vkey("beta.test/roster/1", checkpoint.TypeLog, "a").String() + "\nquorum none\n": 0,
	} {
		if got, err := mustPolicy(t, text).Judge(n); err != nil || len(got.Logs) != logs || !got.Quorum {
			t.Errorf("%s: %+v, %v; want %d logs", text, got, err, logs)
		}
	}

	policy := mustPolicy(t, logLine("a")+witnessLine("w")+"quorum w\n")
	for i := range n.Signatures {
		broken := mustParse(t, n.String())
		broken.Signatures[i].Bytes[20] ^= 1

		if got, err := policy.Judge(broken); !errors.Is(err, checkpoint.ErrSignature) {
			t.Errorf("a broken line %d: %+v, %v", i, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	key := keyOf("a")
	good := checkpoint.Sign(checkpoint.Checkpoint{Origin: origin, Size: 1}, key)
	f.Add(good)
	f.Add(checkpoint.FormatProof(checkpoint.Proof{Index: 3, Checkpoint: good}))
	f.Add(fmt.Sprintf("log %s\nquorum none\n", vkey(origin, checkpoint.TypeLog, "a")))

	f.Fuzz(func(t *testing.T, text string) {
		if n, err := checkpoint.Parse(text); err == nil && n.String() != text {
			t.Errorf("%q is read and written as %q", text, n.String())
		}

		if p, err := checkpoint.ParseProof(text); err == nil && checkpoint.FormatProof(*p) != text {
			t.Errorf("%q is read and written as %q", text, checkpoint.FormatProof(*p))
		}

		if p, err := checkpoint.ParsePolicy(text); err == nil {
			again, err := checkpoint.ParsePolicy(p.Text())
			if err != nil || !reflect.DeepEqual(p, again) {
				t.Errorf("%q is written as %q, which is read as %+v, %v", text, p.Text(), again, err)
			}
		}
	})
}
