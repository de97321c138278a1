package merge

// changes are the changed pods of an update, by notification.
type changes[P any] struct {
	by [RECONCILE + 1][]P
	// firstSet is true for the first SET of a source.
	firstSet bool
}

func (c *changes[P]) add(op Op, pod P) { c.by[op] = append(c.by[op], pod) }

// notify calls send for each notification, in kubelet's order. Its mode is
// PodConfigNotificationIncremental, the only one that kubelet uses.
func (c *changes[P]) notify(send func(Op, []P)) {
	ready := c.firstSet
	for _, op := range [...]Op{REMOVE, ADD, UPDATE, DELETE} {
		if len(c.by[op]) > 0 {
			send(op, c.by[op])
			ready = ready && op == REMOVE
		}
	}
	if ready {
		send(ADD, nil)
	}
	if len(c.by[RECONCILE]) > 0 {
		send(RECONCILE, c.by[RECONCILE])
	}
}

// reset empties the changes and keeps their arrays.
func (c *changes[P]) reset() {
	c.firstSet = false
	for i := range c.by {
		clear(c.by[i])
		c.by[i] = c.by[i][:0]
	}
}
