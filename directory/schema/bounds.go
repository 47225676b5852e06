package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// Bounds of what strangers' schemas and values have one reckon with. A number is
// judged as it is written, digit by digit: one of ten bytes may have a million. A
// pattern of ten bytes may be as large as one of a thousand.
const (
	maxDigits       = 400     // before or behind a number's point
	maxPatterns     = 1 << 13 // instructions of all of a schema's patterns
	maxKeptPatterns = 1 << 10 // of a schema that is kept
	maxMatching     = 1 << 28 // instructions of patterns, times the bytes that they are matched with
)

// An unwieldyError is a number that has too many digits, and where it stands.
type unwieldyError struct{ at string }

func (e *unwieldyError) Error() string { return fmt.Sprintf("a number has over %d digits", maxDigits) }

// wieldy returns nil, or an *unwieldyError.
func wieldy(v any) error {
	if at, bad := unwieldy(v); bad {
		return &unwieldyError{at}
	}
	return nil
}

// unwieldy finds a number that has too many digits, and where it stands.
func unwieldy(v any) (at string, bad bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, part := range v {
			if within, bad := unwieldy(part); bad {
				return strictjson.Pointer("", name) + within, true
			}
		}
	case []any:
		for i, part := range v {
			if within, bad := unwieldy(part); bad {
				return strictjson.Pointer("", strconv.Itoa(i)) + within, true
			}
		}
	case fmt.Stringer: // json.Number
		return "", tooManyDigits(v.String())
	}
	return "", false
}

func tooManyDigits(number string) bool {
	if len(number) > maxDigits {
		return true
	}
	at := strings.IndexAny(number, "eE")
	if at < 0 {
		return false
	}
	exponent, err := strconv.Atoi(number[at+1:])
	return err != nil || exponent > maxDigits || exponent < -maxDigits
}

// A pattern is a regular expression that knows its size in instructions.
type pattern struct {
	*regexp.Regexp
	size int
}

// patterns are those of one schema, which are compiled once each.
type patterns struct {
	known map[string]pattern
	size  int // of all
}

// compile compiles one. It is judged before it takes the memory.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if re, ok := p.known[text]; ok {
		return re, nil
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := instructions(tree)
	if p.size+size > maxPatterns {
		return nil, errors.New("the schema's patterns are too large")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.size += size
	p.known[text] = pattern{re, size}
	return p.known[text], nil
}

// instructions is how large a pattern is once its repetitions are written out.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// patternsOf is the size of the patterns that s itself has matched.
func patternsOf(s *jsonschema.Schema) float64 {
	n := 0
	if p, ok := s.Pattern.(pattern); ok {
		n += p.size
	}
	for re := range s.PatternProperties {
		if p, ok := re.(pattern); ok {
			n += p.size
		}
	}
	return float64(n)
}
