package policy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/trust/policy"
)

// The vocabulary for operators has each action and attribute, and each operation that a route or an
// order asks about.
func TestTheVocabularyIsWhole(t *testing.T) {
	words := map[string]string{}

	for file, pattern := range map[string]string{
		"set.go":                      `ask[A-Z]\w+ += "([a-z-]+)"`,
		"active.go":                   `looksAt\w+, "([a-z]+)"|^\s+"([a-z]+)": +types\.`,
		"../../api/routes.go":         `operatorOf\("([a-z.]+)"\)`,
		"../../api/operator/order.go": `"([a-z]+\.write)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		found := regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < 3 {
			t.Errorf("%s: %d words", file, len(found))
		}

		for _, word := range found {
			words[strings.Join(word[1:], "")] = file
		}
	}

	for word, file := range words {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(policy.Vocabulary) {
			t.Errorf("%q of %s is not in the vocabulary", word, file)
		}
	}
}
