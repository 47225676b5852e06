package schema

import (
	"fmt"
	"strings"
	"testing"
)

// A number that is short to write and long to reckon with, in a value or in a schema,
// is refused and not reckoned with: one of a million digits takes a while, and a
// longer one ended the process.
func TestNumbersOfManyDigitsAreNotJudged(t *testing.T) {
	s, err := Compile([]byte(`{"items":{"type":"integer","minimum":1,"multipleOf":3}}`))
	if err != nil {
		t.Fatal(err)
	}

	for _, number := range []string{"1e999999", "1e2000000", "1E-401", "1e99999999999999999999",
		strings.Repeat("9", maxDigits+1)} {
		vs, err := s.Validate([]byte("[3,"+number+"]"), "/input", NewBudget(MaxSteps))
		if err != nil || len(vs) != 1 || vs[0].Pointer != "/input/1" || !strings.Contains(vs[0].Detail, "digits") {
			t.Errorf("%.30s: %+v, %v; want one violation at /input/1 for its digits", number, vs, err)
		}

		schema := `{"properties":{"a":{"minLength":` + number + `}}}`
		if _, err := Compile([]byte(schema)); err == nil {
			t.Errorf("%.60s is a schema", schema)
		}

		if fault := Check([]byte(schema)); fault == nil || fault.Pointer != "/properties/a/minLength" {
			t.Errorf("%.60s: %+v", schema, fault)
		}
	}

	long := []byte("[3," + strings.Repeat("3", maxDigits) + ",3e300]")
	if vs, err := s.Validate(long, "", NewBudget(MaxSteps)); err != nil || len(vs) != 0 {
		t.Errorf("numbers of as many digits as may be: %+v, %v", vs, err)
	}
}

// Patterns, and lists to compare with, cost no more than a bound, whoever wrote them.
func TestSchemasCostNoMoreThanABound(t *testing.T) {
	for what, schema := range map[string]string{
		"one that is large":             `{"pattern":"` + strings.Repeat("[ab]{1000}", 9) + `"}`,
		"repetitions within each other": `{"pattern":"(((a{10}){10}){10}b){1}(((a{10}){10}){10}b){9}"}`,
		"several": `{"allOf":[` + strings.Repeat(`{"pattern":"[ab]{1000}"},`,
			3) + `{"pattern":"[abc]{1000}"}, {"pattern":"[abd]{1000}"}]}`,
		"of properties' names": `{"patternProperties":{"` + strings.Repeat("[ab]{1000}", 9) + `":{}}}`,
	} {
		s, err := Compile([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Validate([]byte(`1`), "", NewBudget(MaxSteps)); err == nil {
			t.Errorf("%s: %.60s can be used", what, schema)
		}
	}

	long := []byte(`"` + strings.Repeat("a", 1<<20) + `"`)

	var names []string
	for i := range 8000 {
		names = append(names, fmt.Sprintf(`"%d"`, i))
	}

	list := "[" + strings.Join(names, ",") + "]"
	objects := "[" + strings.Repeat(`{"a":1},`, 8000) + `{"a":1}]`

	items := []byte("[" + strings.Repeat(`{},`, 1<<17) + "{}]")
	for _, tc := range []struct {
		schema string
		value  []byte
		judged bool
	}{
		{`{"pattern":"^[a-z]+$"}`, long, true},
		{`{"pattern":"(a?){700}(a?){700}b$"}`, long, false},
		{`{"properties":{"a":{"pattern":"(a?){700}(a?){700}b$"}}}`, []byte(`{"a":` + string(long) + `}`), false},
		{`{"enum":` + list + `}`, []byte(`"7"`), true},
		{`{"items":{"not":{"enum":` + objects + `}}}`, items, false},
		{`{"items":{"not":{"allOf":[{"required":` + list + `}]}}}`, items, true}, // the first that is missing ends it
		{`{"items":{"required":["a"]}}`, items, true},
	} {
		s, err := Compile([]byte(tc.schema))
		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Validate(tc.value, "", NewBudget(MaxSteps)); (err == nil) != tc.judged {
			t.Errorf("%.60s: %v; judged: want %v", tc.schema, err, tc.judged)
		}
	}
}
