// hidden: students do not get the line of tests.c that includes this, nor what is below it.
#undef GRADE_IS_HIDDEN
#define GRADE_IS_HIDDEN true
