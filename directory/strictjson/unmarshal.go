package strictjson

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxShown bounds a value that an error quotes.
const maxShown = 40

// Unmarshal is json.Unmarshal with errors for people who write JSON: they have no Go types. Its
// errors are *Error.
func Unmarshal(text []byte, into any, options ...json.Options) error {
	err := json.Unmarshal(text, into, options...)

	var mismatch *json.SemanticError

	switch {
	case err == nil:
		return nil
	case errors.As(err, &mismatch):
		return semanticError(mismatch, text)
	}

	return syntaxError(err)
}

// syntaxError describes an error of the decoder.
func syntaxError(err error) *Error {
	var syntactic *jsontext.SyntacticError

	switch {
	case errors.Is(err, io.EOF):
		return refuse("the JSON is empty")
	case !errors.As(err, &syntactic):
		return refuse("the JSON is not valid: %w", err)
	}

	var refusal *Error

	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && syntactic.ByteOffset == 0:
		refusal = refuse("the JSON is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		refusal = refuse("the JSON ends too early, at byte %d", syntactic.ByteOffset)
	case errors.Is(err, jsontext.ErrDuplicateName):
		refusal = refuse("the JSON is not strict: the member %q occurs twice", syntactic.JSONPointer.LastToken())
	case syntactic.Err == nil:
		refusal = refuse("the JSON is not valid at byte %d", syntactic.ByteOffset)
	default:
		refusal = refuse("the JSON is not valid at byte %d: %s", syntactic.ByteOffset, syntactic.Err)
	}

	refusal.Pointer = string(syntactic.JSONPointer)

	return refusal
}

// semanticError describes text that has another form than expected.
func semanticError(err *json.SemanticError, text []byte) *Error {
	var refusal *Error

	name := string(err.JSONPointer)
	name = cmp.Or(name, "the JSON")

	switch {
	case errors.Is(err, json.ErrUnknownName):
		refusal = refuse("the member %q is not known", err.JSONPointer.LastToken())
		if known := membersOf(err.GoType); len(known) > 0 {
			refusal.Detail += "; known are " + strings.Join(known, ", ")
		}
	case err.Err != nil && err.JSONKind == '"' && readsItself(err.GoType):
		refusal = refuse("%s: %w", name, err.Err)
	default:
		refusal = refuse("%s must be %s, got %s", name, expected(err.GoType), found(text, err.ByteOffset))
	}

	refusal.Pointer = string(err.JSONPointer)

	return refusal
}

// membersOf returns the names of the members that a type knows.
func membersOf(typ reflect.Type) []string {
	var names []string

	if typ == nil || typ.Kind() != reflect.Struct {
		return nil
	}

	for _, field := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.IsExported() && name != "" && name != "-" {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// readsItself reports whether a type reads itself from a text.
func readsItself(typ reflect.Type) bool {
	return typ != nil && typ != reflect.TypeFor[time.Time]() &&
		reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// expected describes the JSON that a type is read from.
func expected(typ reflect.Type) string {
	if typ == nil {
		return "of another form"
	}

	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}

	switch {
	case typ == reflect.TypeFor[time.Time]():
		return "a time, such as 2026-01-31T15:04:05Z"
	case readsItself(typ):
		return "a string"
	}

	switch typ.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-typ.Bits()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of at most %d", int64(^uint64(0)>>(65-typ.Bits())))
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}

		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}

	return "of another form"
}

// found describes the value of a text that begins after an offset.
func found(text []byte, offset int64) string {
	value, err := jsontext.NewDecoder(bytes.NewReader(bytes.TrimLeft(text[offset:], " \t\r\n,:"))).ReadValue()
	kind := value.Kind()

	switch {
	case err != nil:
		return "another value"
	case kind == '{':
		return "an object"
	case kind == '[':
		return "an array"
	case len(value) > maxShown:
		return "a longer value"
	}

	return string(value)
}
