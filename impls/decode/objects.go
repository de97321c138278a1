package decode

// identity has what the decoder needs to know of an object in protobuf before it decodes it.
type identity struct {
	uid     []byte
	managed []byte // the run of the managed fields
	after   []byte // all bytes after them
}

// Field numbers of metav1.ObjectMeta and of the metadata of every object.
const (
	metadataField = 1
	uidField      = 5
	managedField  = 17
)

// identify reads the identity of an object in protobuf. It reports false for an object without UID,
// and for metadata that no API server writes.
func identify(b []byte) (id identity, ok bool) {
	metadata := false
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok || tag>>3 == metadataField && metadata {
			return identity{}, false
		}
		if i = to; tag != metadataField<<3|wireBytes {
			continue
		}
		metadata = true
		for at := from; at < to; {
			tag, from, next, ok := span(b[:to], at)
			if !ok {
				return identity{}, false
			}
			part := id.part(tag)
			if part == &id.managed {
				if next, _, ok = run(b[:to], next, tag); !ok {
					return identity{}, false
				}
				from, id.after = at, b[next:]
			}
			if part != nil && *part != nil {
				return identity{}, false
			}
			if part != nil {
				*part = b[from:next:next]
			}
			at = next
		}
	}
	return id, len(id.uid) > 0
}

// part returns where the value of a field of the metadata goes, or nil.
func (id *identity) part(tag uint64) *[]byte {
	switch tag {
	case uidField<<3 | wireBytes:
		return &id.uid
	case managedField<<3 | wireBytes:
		return &id.managed
	}
	return nil
}
