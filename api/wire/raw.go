package wire

import "errors"

// RawJSON is one JSON value, as it was written.
type RawJSON []byte

var errNoValue = errors.New("wire: no JSON value")

// MarshalJSON returns the value. One of no bytes is null.
func (v RawJSON) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}

	if len(v) == 0 {
		return nil, errNoValue
	}

	return v, nil
}

// UnmarshalJSON keeps a copy of the value.
func (v *RawJSON) UnmarshalJSON(b []byte) error {
	*v = append((*v)[:0], b...)
	return nil
}
