package decode

// Field numbers of metav1.ObjectMeta and of the metadata of every object.
const (
	metadataField = 1
	uidField      = 5
	managedField  = 17
)

// identify returns the UID of an object in protobuf, and all bytes after its managed fields, if it has any. It
// reports false for an object without UID, and for metadata that no API server writes.
func identify(b []byte) (uid, after []byte, ok bool) {
	metadata := false
	for i := 0; i < len(b); {
		tag, at, to, ok := span(b, i)
		if !ok || tag>>3 == metadataField && metadata {
			return nil, nil, false
		}
		if i = to; tag != metadataField<<3|wireBytes {
			continue
		}
		metadata = true
		for at < to {
			tag, from, next, ok := span(b[:to], at)
			again := false
			switch tag {
			case uidField<<3 | wireBytes:
				again, uid = uid != nil, b[from:next:next]
			case managedField<<3 | wireBytes:
				next, _, ok = run(b[:to], next, tag)
				again, after = after != nil, b[next:]
			}
			if !ok || again {
				return nil, nil, false
			}
			at = next
		}
	}
	return uid, after, len(uid) > 0
}
