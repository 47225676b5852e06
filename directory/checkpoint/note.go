package checkpoint

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxNote bounds a signed note in bytes.
	MaxNote = 64 << 10
	// MaxSignatures bounds the signatures of a note.
	MaxSignatures = 64
)

var (
	// ErrNotSigned is the error of a note that has no line by the key.
	ErrNotSigned = errors.New("not signed by the key")
	// ErrSignature is the error of a note with a line by the key that does not hold.
	// C2SP wants the whole note refused.
	ErrSignature = errors.New("invalid signature")
)

// A Note is a parsed signed note of a checkpoint. Its form alone was checked.
type Note struct {
	Checkpoint
	// Text is the signed text: the checkpoint's text, and a foreign log's extension
	// lines. It is not the whole note.
	Text       string
	Signatures []Signature // one for each key
}

// A Signature is a signature line. Name and ID say by which key it would be.
type Signature struct {
	Name  string
	ID    uint32
	Bytes []byte // without the id
}

// signatureMark begins each signature line.
const signatureMark = "— "

// String returns the line, the final LF included.
func (s Signature) String() string {
	raw := binary.BigEndian.AppendUint32(nil, s.ID)
	return signatureMark + s.Name + " " + b64.EncodeToString(append(raw, s.Bytes...)) + "\n"
}

// IsBy reports whether the line says that it is by a key.
func (s Signature) IsBy(key VerifierKey) bool { return s.Name == key.Name && s.ID == key.ID() }

// String returns the whole note, as it was parsed.
func (n *Note) String() string {
	var b strings.Builder
	b.WriteString(n.Text + "\n")

	for _, s := range n.Signatures {
		b.WriteString(s.String())
	}

	return b.String()
}

// Parse reads the signed note of a checkpoint. It refuses two lines by one key.
func Parse(text string) (*Note, error) {
	if len(text) > MaxNote {
		return nil, fmt.Errorf("%w: a note has at most %d bytes, got %d", ErrForm, MaxNote, len(text))
	}

	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return nil, fmt.Errorf("%w: a note is UTF-8 without control characters", ErrForm)
	}

	// Lines of a checkpoint are not empty: the first empty line ends its text.
	signed, lines, found := strings.Cut(text, "\n\n")
	if !found {
		return nil, fmt.Errorf("%w: the note has no signatures after an empty line", ErrForm)
	}

	// The newline that ends the text is signed as well, and the cut took it.
	signed += "\n"

	checkpoint, err := parseText(signed)
	if err != nil {
		return nil, err
	}

	signatures, err := ParseSignatures(lines)
	if err != nil {
		return nil, err
	}

	return &Note{checkpoint, signed, signatures}, nil
}

// ParseSignatures reads one or more signature lines, such as a witness answers.
func ParseSignatures(text string) ([]Signature, error) {
	if len(text) > MaxNote {
		return nil, fmt.Errorf("%w: signature lines have at most %d bytes, got %d", ErrForm, MaxNote, len(text))
	}

	body, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return nil, fmt.Errorf("%w: the last signature line does not end in a newline", ErrForm)
	}

	lines := strings.Split(body, "\n")
	if len(lines) > MaxSignatures {
		return nil, fmt.Errorf("%w: a note has at most %d signatures, got %d", ErrForm, MaxSignatures, len(lines))
	}

	signatures := make([]Signature, 0, len(lines))
	for _, line := range lines {
		s, err := parseSignature(line)
		if err != nil {
			return nil, err
		}

		// Verify takes the first line by a key, so a second one would never be judged.
		for _, other := range signatures {
			if other.Name == s.Name && other.ID == s.ID {
				return nil, fmt.Errorf("%w: two signature lines by the key %08x of %s", ErrForm, s.ID, clip(s.Name))
			}
		}

		signatures = append(signatures, s)
	}

	return signatures, nil
}

func parseSignature(line string) (Signature, error) {
	rest, marked := strings.CutPrefix(line, signatureMark)
	name, encoded, _ := strings.Cut(rest, " ")

	raw, err := b64.DecodeString(encoded)
	if !marked || err != nil || !isName(name) || len(raw) < 5 {
		return Signature{}, fmt.Errorf("%w: %q is not a signature line", ErrForm, clip(line))
	}

	s := Signature{name, binary.BigEndian.Uint32(raw), raw[4:]}

	// One signature must not have two lines.
	if s.String() != line+"\n" {
		return Signature{}, fmt.Errorf("%w: signature line %q has another encoding", ErrForm, clip(line))
	}

	return s, nil
}

// Verify checks the line by a key. Its error is ErrNotSigned without a line by that
// key, and ErrSignature if the line does not hold. The time is that of a cosignature.
func (n *Note) Verify(key VerifierKey) (time.Time, error) {
	for _, s := range n.Signatures {
		if s.IsBy(key) {
			return n.verify(s.Bytes, key)
		}
	}

	return time.Time{}, fmt.Errorf("%w %08x of %s", ErrNotSigned, key.ID(), key.Name)
}

// maxTime is the end of the year 9999, the last that timestamps in JSON have.
const maxTime = 253402300799

func (n *Note) verify(signature []byte, key VerifierKey) (time.Time, error) {
	if len(key.Key) != ed25519.PublicKeySize {
		return time.Time{}, fmt.Errorf("%w: the key of %s has %d bytes", ErrSignature, key.Name, len(key.Key))
	}

	switch {
	case key.Type == TypeLog && len(signature) == ed25519.SignatureSize:
		if ed25519.Verify(key.Key, []byte(n.Text), signature) {
			return time.Time{}, nil
		}
	case key.Type == TypeWitness && len(signature) == 8+ed25519.SignatureSize:
		// A witness that gives no time does not say that it saw no larger tree.
		at := binary.BigEndian.Uint64(signature)
		if at > 0 && at <= maxTime && ed25519.Verify(key.Key, cosigned(n.Text, at), signature[8:]) {
			return time.Unix(int64(at), 0).UTC(), nil
		}
	}

	return time.Time{}, fmt.Errorf("%w: key %08x of %s", ErrSignature, key.ID(), key.Name)
}

// cosigned returns the message of a cosignature.
func cosigned(text string, at uint64) []byte {
	return fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s", at, text)
}

// Signed reports whether the note is of origin and a key of that name signed it.
func (n *Note) Signed(origin string, key ed25519.PublicKey) bool {
	_, err := n.Verify(VerifierKey{origin, TypeLog, key})
	return err == nil && n.Origin == origin
}

// Sign returns the note of a checkpoint with one signature, by a key whose name is the
// origin.
func Sign(c Checkpoint, key ed25519.PrivateKey) string {
	public := VerifierKey{c.Origin, TypeLog, publicOf(key)}
	n := Note{c, c.Text(), []Signature{{public.Name, public.ID(), ed25519.Sign(key, []byte(c.Text()))}}}

	return n.String()
}

// Cosign returns the signature line of a witness, the final LF included. The time is
// cut to seconds.
func Cosign(n *Note, name string, key ed25519.PrivateKey, at time.Time) string {
	seconds := uint64(at.Unix())
	raw := binary.BigEndian.AppendUint64(nil, seconds)
	raw = append(raw, ed25519.Sign(key, cosigned(n.Text, seconds))...)

	return Signature{name, VerifierKey{name, TypeWitness, publicOf(key)}.ID(), raw}.String()
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.SeedSize:])
}
