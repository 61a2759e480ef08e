// hidden: the tests below the line of tests.c that includes this are hidden. Students do not get that line and what follows.
#undef GRADE_IS_HIDDEN
#define GRADE_IS_HIDDEN true
