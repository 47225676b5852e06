package signed_test

import (
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
)

func TestFormatsAreAgreedByWhatBothRead(t *testing.T) {
	newer := signed.Formats{"statement": {1, 2, 3}, "page": {1, 2}}
	older := signed.Formats{"statement": {1, 3}, "other": {1, 2}}
	common := newer.Common(older)

	if got := string(signed.AppendFormats(nil, common)); got != `{"statement":[1,3]}` {
		t.Errorf("both read %s", got)
	}

	if !common.Equal(older.Common(newer)) {
		t.Error("the order in which readers are asked matters")
	}

	if common.Highest(signed.StructureStatement) != 3 || common.Highest(signed.StructurePage) != 1 {
		t.Errorf("the highest common formats are wrong: %v", common)
	}

	if newer.Covers(older) || !newer.Covers(common) || !newer.Covers(nil) {
		t.Error("Covers doesn't say what a reader lacks")
	}
}

func TestFormatsThatNoReleaseSaysAreRefused(t *testing.T) {
	for _, f := range []signed.Formats{
		{"page": {}}, {"page": {2}}, {"page": {1, 1}}, {"page": {1, 3, 2}}, {"": {1}},
	} {
		if f.Validate() == nil {
			t.Errorf("%v is taken", f)
		}
	}

	if err := (signed.Formats{"page": {1, 3}, "unknown": {1}}).Validate(); err != nil {
		t.Error(err)
	}

	if err := signed.ReadableFormats().Validate(); err != nil {
		t.Error(err)
	}
}
