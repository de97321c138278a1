package ring

import (
	"testing"
	"testing/synctest"
)

// list is a state: values that are taken one at a time.
type list struct{ values []int }

func (l *list) Receive(first, n int, more <-chan int) {
	l.values = append(l.values, first)
	for range n {
		l.values = append(l.values, <-more)
	}
}

func (l *list) Enough(q Question) bool { return q.Take && len(l.values) > 0 }

func (l *list) Answer(q Question) (int, bool) {
	if !q.Take {
		return len(l.values), true
	}
	if len(l.values) == 0 {
		return 0, false
	}
	v := l.values[0]
	l.values = l.values[1:]
	return v, true
}

// TestMailboxOwnerEnds: after Close the owner ends without a consumer, with all
// sent values received.
func TestMailboxOwnerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMailbox[int, int](10)
		for v := range 10 {
			if !m.Send(v + 1) {
				t.Fatal("refused before Close")
			}
		}
		// A producer that is committed when Close comes.
		sent := make(chan bool)
		go func() { sent <- m.Send(11) }()
		synctest.Wait()
		m.Close()
		m.Close()
		if m.Send(12) {
			t.Error("accepted after Close")
		}
		go m.Own(&list{})
		synctest.Wait()
		if !<-sent {
			t.Error("refused although it was committed")
		}
		if len(m.left) != 1 || len(m.in) > 0 {
			t.Fatalf("the owner left %d states and %d values in the channel", len(m.left), len(m.in))
		}
		reply := make(chan int, 1)
		if n := m.Ask(Question{}, reply); n != 11 {
			t.Errorf("%d values were left, want 11", n)
		}
		for v := range 12 {
			if got := m.Ask(Question{Take: true}, reply); got != (v+1)%12 {
				t.Errorf("took %d, want %d", got, (v+1)%12)
			}
		}
	})
}

// waiting returns a mailbox whose owner runs and has a waiting question, and the channel for its
// answer.
func waiting() (m *Mailbox[int, int], taken <-chan int) {
	m = NewMailbox[int, int](1)
	go m.Own(&list{})
	answer := make(chan int, 1)
	go func() { answer <- m.Ask(Question{Take: true}, make(chan int, 1)) }()
	synctest.Wait()
	return m, answer
}

// TestMailboxQuestionBeside: values that the owner receives for one question answer
// the waiting one first.
func TestMailboxQuestionBeside(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			m, taken := waiting()
			m.Send(1)
			// The owner has the value and the question to choose from.
			if n := m.Ask(Question{}, make(chan int, 1)); n != 0 {
				t.Errorf("length is %d although the value answered a question", n)
			}
			if v := <-taken; v != 1 {
				t.Errorf("took %d", v)
			}
			m.Close()
		})
	}
}
