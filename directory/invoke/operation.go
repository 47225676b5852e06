package invoke

import (
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/schema"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// An Operation is one operation of an agent.
type Operation struct {
	Name          string // as the agent calls it; "" if it has but one, without a name
	Input, Output []byte // schemas; nil if unknown
	Batch         bool   // the agent takes an array of inputs itself
}

// Operations returns an agent's operations, by its document and the projection of that.
func Operations(doc directory.Document, projection *directory.Projection) []Operation {
	members := doc.Members()
	batch := takesBatches(members)

	var all []Operation
	for _, capability := range projection.Capabilities {
		// Only tools are called; a skill describes the agent.
		if capability.Type != directory.CapabilityTool {
			continue
		}

		operation := Operation{Name: capability.Name, Input: capability.InputSchema, Output: capability.OutputSchema,
			Batch: batch}
		if capability.Operation != "" {
			operation.Name = capability.Operation
		}

		if capability.Raw != nil {
			operation.Batch = batch || takesBatches(strictjson.SplitObject(capability.Raw))
		}

		all = append(all, operation)
	}

	if len(all) == 0 {
		operation := Operation{Batch: batch}
		if doc.Kind() == directory.KindAIDIP {
			operation.Input = objectMember(members, "inputs")
			operation.Output = objectMember(members, "outputs")
		}

		return []Operation{operation}
	}

	return all
}

// Pace is how much an agent's registration says that it takes; 0 if it doesn't
// say.
type Pace struct {
	PerSecond  float64
	Concurrent int
}

// PaceOf reads rate_limit (or rate_limits): {"requests_per_second",
// "requests_per_minute", "max_concurrent"}, and max_calls_per_minute, as drafts
// show it without standardising it (draft-cui, 3). Of several that say the same, the
// lowest holds.
func PaceOf(d directory.Document) (pace Pace) {
	members := d.Members()
	slower := func(perSecond float64) {
		if perSecond > 0 && (pace.PerSecond == 0 || perSecond < pace.PerSecond) {
			pace.PerSecond = perSecond
		}
	}

	slower(numberMember(members, "max_calls_per_minute") / 60)

	for _, name := range []string{"rate_limit", "rate_limits"} {
		limits := strictjson.SplitObject(objectMember(members, name))
		slower(numberMember(limits, "requests_per_second"))
		slower(numberMember(limits, "requests_per_minute") / 60)

		n := int(numberMember(limits, "max_concurrent"))
		if n > 0 && (pace.Concurrent == 0 || n < pace.Concurrent) {
			pace.Concurrent = n
		}
	}

	return pace
}

// takesBatches reports whether an object says that it takes an array of inputs.
func takesBatches(members []strictjson.Member) bool {
	raw, _ := strictjson.FindMember(members, "batch")
	return string(raw) == "true"
}

// objectMember returns a member that is an object; nil if it is absent or of another type.
func objectMember(members []strictjson.Member, name string) []byte {
	raw, found := strictjson.FindMember(members, name)
	if !found || raw[0] != '{' {
		return nil
	}

	return raw
}

// numberMember returns a member that is a number; 0 if it is absent or of another type.
func numberMember(members []strictjson.Member, name string) (n float64) {
	raw, found := strictjson.FindMember(members, name)
	if !found || json.Unmarshal(raw, &n) != nil {
		return 0
	}

	return n
}

func (o *Operation) takesArrays() bool {
	s, err := schema.Compile(o.Input)
	return o.Input != nil && err == nil && s.TakesArrays()
}

// Declares reports whether the input's schema says something of a member of that name.
func (o *Operation) Declares(member string) bool { return declares(o.Input, member) }

// DeclaresOutput reports the same of the output's.
func (o *Operation) DeclaresOutput(member string) bool { return declares(o.Output, member) }

func declares(text []byte, member string) bool {
	if text == nil {
		return false
	}

	s, err := schema.Compile(text)

	return err == nil && s.Declares(member)
}
