package schema

import "testing"

const (
	common = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "description": "D",
		"properties": {"text": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 1, "maximum": 20},
			"to": {"enum": ["de", "fr"]}, "score": {"type": "number"},
			"tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2}, "on": {"type": ["boolean", "null"]}},
		"required": ["text"], "additionalProperties": {"type": "object"}}`
	good = `{"text": "Straße", "n": 20, "to": "fr", "score": 0.5, "tags": ["a", "b"], "on": null, "x": {"any": [1, {"e": 1.5e3}]}}`
)

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()

	for b.Loop() {
		if _, err := compile([]byte(common)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s, err := compile([]byte(common))
	if err != nil {
		b.Fatal(err)
	}

	b.ReportAllocs()

	for b.Loop() {
		if found, err := s.validate([]byte(good), 1, NewBudget(MaxSteps)); err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
	}
}
