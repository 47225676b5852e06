package signed

import (
	"fmt"
	"maps"
	"slices"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Structure is a kind of signed bytes whose format is negotiated between
// domains (federation.md, "Formats over time"). Key documents and attestations
// stay at format 1 and grow by ext alone.
type Structure string

// The structures whose formats are negotiated. A newer release may name others; a reader keeps
// and ignores unknown ones.
const (
	StructureHead      Structure = "head"
	StructurePage      Structure = "page"
	StructureStatement Structure = "statement"
)

// StructureAttestation names an attestation, which has ext and crit and no number
// of a format.
const StructureAttestation Structure = "attestation"

// Structures lists the structures that this release negotiates, in the order in
// which a key document names them.
func Structures() []Structure {
	return []Structure{StructureHead, StructurePage, StructureStatement}
}

// Formats says which formats of each structure a reader understands, in
// ascending order. A structure that is absent is read in format 1 alone, so the
// zero value is a reader of format 1 of everything.
type Formats map[Structure][]uint

// maxFormats bounds the structures of one Formats, and the formats of one structure.
const maxFormats = 16

var onlyFormat1 = []uint{1}

// ReadableFormats returns the formats that this build reads.
func ReadableFormats() Formats {
	readable := Formats{}

	for _, structure := range Structures() {
		for format := uint(1); format <= newestFormat; format++ {
			readable[structure] = append(readable[structure], format)
		}
	}

	return readable.Normal()
}

// Of returns the formats of a structure that f reads, in ascending order.
func (f Formats) Of(structure Structure) []uint {
	if formats, named := f[structure]; named {
		return formats
	}

	return onlyFormat1
}

// Reads reports whether f reads that format of a structure.
func (f Formats) Reads(structure Structure, format uint) bool {
	return slices.Contains(f.Of(structure), format)
}

// Covers reports whether f reads every format of every structure that other reads.
func (f Formats) Covers(other Formats) bool {
	return f.Common(other).Equal(other)
}

// Highest returns the highest format of a structure that f reads.
func (f Formats) Highest(structure Structure) uint {
	return slices.Max(f.Of(structure))
}

// Common returns the formats that both f and other contain. Every release reads format 1, so no
// structure is left without a format.
func (f Formats) Common(other Formats) Formats {
	common := Formats{}

	// A structure that f does not name is read in format 1 alone, which Normal leaves out.
	for structure := range f {
		for _, format := range f.Of(structure) {
			if other.Reads(structure, format) {
				common[structure] = append(common[structure], format)
			}
		}
	}

	return common.Normal()
}

// Normal returns f without the structures that are read in format 1 alone:
// of two equal sets it makes one encoding.
func (f Formats) Normal() Formats {
	normal := Formats{}

	for structure, formats := range f {
		if len(formats) > 0 && !slices.Equal(formats, onlyFormat1) {
			normal[structure] = formats
		}
	}

	return normal
}

// Equal reports whether f and other read the same.
func (f Formats) Equal(other Formats) bool {
	return maps.EqualFunc(f.Normal(), other.Normal(), slices.Equal)
}

// Validate refuses declarations that no reader may make: no formats, formats out of order or
// without format 1, and more structures or formats than any release has.
func (f Formats) Validate() error {
	if len(f) > maxFormats {
		return fmt.Errorf("formats of %d structures; at most %d are allowed", len(f), maxFormats)
	}

	for structure, formats := range f {
		if structure == "" || len(structure) > 32 || len(formats) == 0 || len(formats) > maxFormats ||
			formats[0] != 1 || !ascending(formats) {
			return fmt.Errorf("formats of %.32q must be ascending numbers from 1 on, got %v", structure, formats)
		}
	}

	return nil
}

// ascending reports whether each number is higher than the one before it.
func ascending(numbers []uint) bool {
	for i := 1; i < len(numbers); i++ {
		if numbers[i-1] >= numbers[i] {
			return false
		}
	}

	return true
}

// AppendFormats appends the JSON object of f, names in ascending order. The
// caller leaves the member out if f is Normal and empty.
func AppendFormats(data []byte, formats Formats) []byte {
	data = append(data, '{')

	for i, structure := range slices.Sorted(maps.Keys(formats)) {
		if i > 0 {
			data = append(data, ',')
		}

		data = append(strictjson.AppendString(data, string(structure)), ':')
		data = strictjson.AppendList(data, formats[structure], func(b []byte, format uint) []byte {
			return fmt.Append(b, format)
		})
	}

	return append(data, '}')
}
