package schema

import (
	"bytes"
	"math/big"
	"strconv"
	"strings"
)

// A decimal is a number as its digits and the place of its point: 0.digits × 10^exponent.
// Digits have no zeros at either end; zero has none at all, and no sign.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// decimalOf reads a number in JSON's form that has at most maxDigits digits.
func decimalOf(text string) decimal {
	var d decimal
	if d.negative = strings.HasPrefix(text, "-"); d.negative {
		text = text[1:]
	}

	if at := strings.IndexAny(text, "eE"); at >= 0 {
		d.exponent, _ = strconv.Atoi(text[at+1:]) // its form and size were checked when it was read
		text = text[:at]
	}

	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	d.exponent += len(whole)

	trimmed := strings.TrimLeft(digits, "0")
	d.exponent -= len(digits) - len(trimmed)
	d.digits = strings.TrimRight(trimmed, "0")

	if d.digits == "" {
		return decimal{}
	}

	return d
}

func (d decimal) isInteger() bool { return len(d.digits) <= max(d.exponent, 0) }

// compare returns -1, 0 or 1.
func (d decimal) compare(other decimal) int {
	switch {
	case d == other:
		return 0
	case d.sign() != other.sign():
		if d.sign() < other.sign() {
			return -1
		}

		return 1
	}

	larger := 0
	if d.exponent != other.exponent {
		larger = 1
		if d.exponent < other.exponent {
			larger = -1
		}
	} else {
		larger = strings.Compare(d.digits, other.digits)
	}

	if d.negative {
		return -larger
	}

	return larger
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}

	return 1
}

// rational returns the number exactly.
func (d decimal) rational() *big.Rat {
	value := new(big.Rat)
	if d.digits == "" {
		return value
	}

	// The digits are decimal and the exponent is small: this can't fail.
	value.SetString(d.digits + "e" + strconv.Itoa(d.exponent-len(d.digits)))

	if d.negative {
		value.Neg(value)
	}

	return value
}

// isMultiple reports whether a number in JSON's form is a multiple of another.
func isMultiple(text []byte, of decimal, ofRational *big.Rat) bool {
	// Most numbers are small integers, for which the division of the processor is exact.
	if of.isInteger() && !bytes.ContainsAny(text, ".eE") && ofRational.Num().IsInt64() {
		value, err := strconv.ParseInt(string(text), 10, 64)
		if err == nil {
			return value%ofRational.Num().Int64() == 0
		}
	}

	quotient := new(big.Rat).Quo(decimalOf(string(text)).rational(), ofRational)

	return quotient.IsInt()
}

func abs(n int) int { return max(n, -n) }
